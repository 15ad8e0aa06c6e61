#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""table.py [--show CELL] COMPILER ARGUMENT...: every function with every kind of argument that it refuses.

Each cell is one call, and the compiler judges all of them in one file. It must refuse each in at most 15 lines (clang++, which goes
on with the overloads that it did not choose, in 120). The line of the error (clang++: its first 25) has the reason, which is named here beside the
argument.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile

PREAMBLE = """
#include <cstdio>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <vector>
#include <hfcomm/comm.hpp>
#include <hfcomm/core/stream_ref.hpp>
using namespace hfcomm;
struct widget { int x = 0; };
class hidden { template <class Archive> void serialize(Archive& archive) { archive(x_); } int x_ = 0; };
struct base { virtual ~base() = default; template <class Archive> void serialize(Archive&) {} };
enum class color { red };
const process_group& group = world();
widget a_widget; const widget a_const_widget; hidden a_hidden; int a_number = 0; int* a_pointer = &a_number; std::FILE* a_file = nullptr;
const int a_const_number = 1; const std::string a_const_string; const std::vector<int> const_numbers(4);
std::shared_ptr<int> a_shared; std::unique_ptr<base> a_polymorphic; std::unique_ptr<int[]> an_array_pointer; std::string_view a_view;
std::function<int()> a_function; std::vector<widget> widgets; std::list<std::string_view> views; std::map<int, widget> widget_map;
std::vector<int*> pointers; std::mutex a_mutex; std::thread a_thread; color a_color{}; work<int>* a_work = nullptr; std::vector<int> numbers(4);
std::vector<double> doubles(4); std::vector<bool> bools(4); std::list<int> number_list; std::string text; std::vector<color> colors;
std::vector<std::string> strings; device_span<int> device_numbers; std::map<std::string, widget> widget_dictionary;
std::map<std::string, std::string> string_dictionary; std::multimap<std::string, double> equal_keys;
const auto lambda = [copy = std::string()] { return copy; }; char letters[4] = {};
std::vector<std::pair<int, double>> pairs(4); bool flags[4] = {};
const auto pick = [](const auto& first, const auto&) { return first; };
"""

# Objects that no function sends.
OBJECTS = {
    "class": ("a_widget", "serialize_member.*or_include_hfcomm_aggregates_hpp"),
    "private serialize": ("a_hidden", "its_serialize_is_private"),
    "pointer": ("a_pointer", "a_raw_pointer"),
    "FILE*": ("a_file", "a_raw_pointer"),
    "shared_ptr": ("a_shared", "shared_ownership"),
    "polymorphic unique_ptr": ("a_polymorphic", "behind_a_polymorphic_pointer"),
    "unique_ptr<T[]>": ("an_array_pointer", "a_unique_ptr_needs"),
    "string_view": ("a_view", "a_decoded_view|constant_elements<char>"),
    "literal": ("\"text\"", "an_array_is_no_object"),
    "char array": ("letters", "an_array_is_no_object"),
    "std::function": ("a_function", "it_means_nothing"),
    "vector of classes": ("widgets", "not_serializable<widget>"),
    "list of views": ("views", "a_decoded_view"),
    "map of classes": ("widget_map", "not_serializable<widget>"),
    "vector of pointers": ("pointers", "not_serializable<int ?\\*>"),
    "mutex": ("a_mutex", "it_means_nothing"),
    "lambda": ("lambda", "serialize_member"),
    "work": ("*a_work", "it_means_nothing"),
    "group": ("group", "it_means_nothing"),
    "null pointer": ("nullptr", "it_means_nothing"),
    "device memory": ("device_numbers", "device_memory_needs_hfcomm_nccl_hpp|there_for_host_memory"),
}
OBJECT_CALLS = {
    "all_gather": "(void)all_gather({})",
    "all_gather_async": "(void)all_gather_async({})",
    "gather": "(void)gather({}, 0)",
    "gather_async": "(void)gather_async({})",
    "broadcast": "broadcast({})",
    "broadcast_async": "(void)broadcast_async({})",
    "send": "send({}, 1)",
    "isend": "(void)isend({}, 1)",
    "send_receive": "(void)send_receive({}, 1, 1)",
    "batch send": "message_batch().send({}, 1)",
    "batch recv": "message_batch().recv({}, 1)",
}
# Types of which no function sends objects.
TYPES = {
    "class": ("widget", "serialize_member"),
    "private serialize": ("hidden", "its_serialize_is_private"),
    "pointer": ("int*", "a_raw_pointer"),
    "shared_ptr": ("std::shared_ptr<int>", "shared_ownership"),
    "string_view": ("std::string_view", "a_decoded_view"),
    "vector of classes": ("std::vector<widget>", "not_serializable<widget>"),
}
TYPE_CALLS = {
    "recv": "(void)recv<{}>(1)",
    "irecv": "(void)irecv<{}>(1)",
    "recv any": "(void)recv<{}>(any_source)",
    "collect_results": "(void)collect_results(std::vector<{}>(), 0)",
    "scatter": "(void)scatter(std::vector<{}>())",
    "scatter_async": "(void)scatter_async(std::vector<{}>())",
    "all_to_all": "(void)all_to_all(std::vector<{}>())",
    "all_to_all_async": "(void)all_to_all_async(std::vector<{}>())",
    "broadcast_object_list": "broadcast_object_list(std::tuple<int&, {0}&>(a_number, *static_cast<{0}*>(nullptr)))",
}
NO_LISTS = {
    "tuple of values": ("std::tuple<int, int>(1, 2)", "std_tie"),
    "object": ("text", "std_tie"),
    "map": ("string_dictionary", "std_tie"),
    "const vector": ("const_numbers", "a_std_vector_that_is_not_constant"),
}
NO_LIST_CALLS = {"broadcast_object_list": "broadcast_object_list({})", "broadcast_object_list_async": "(void)broadcast_object_list_async({})"}
# Objects that are constant where they are received.
RECEIVED = {
    "const int": ("a_const_number", "constant_object<int>"),
    "const string": ("a_const_string", "constant_object<std::"),
    "const vector": ("const_numbers", "constant_object<std::vector"),
    "view of const": ("std::span(const_numbers)", "constant_elements<int>"),
    "temporary": ("std::string()", "temporary_object"),
}
RECEIVING_CALLS = {
    "broadcast": "broadcast({})",
    "broadcast_async": "(void)broadcast_async({})",
    "batch recv": "message_batch().recv({}, 1)",
}
RECEIVED_MEMORY = {
    "const vector": ("const_numbers", "wrap_it_in_std_span"),
    "view of const": ("std::span(const_numbers)", "constant_elements<int>"),
    "vector": ("numbers", "wrap_it_in_std_span"),
    "number": ("a_number", "recv_of_its_type"),
    "string": ("text", "wrap_it_in_std_span"),
    "list": ("number_list", "recv_of_its_type"),
    "device memory": ("device_numbers", "device_memory_needs_hfcomm_nccl_hpp"),
}
RECV_CALLS = {"recv": "recv({}, 1)", "irecv": "(void)irecv({}, 1)"}
# What has no sum.
SUMMANDS = {
    "class": ("a_widget", "not_reducible<widget>"),
    "enumeration": ("a_color", "not_reducible<color>"),
    "pointer": ("a_pointer", "a_pointer_has_no_length"),
    "const vector": ("const_numbers", "constant_elements<int>"),
    "vector of enumerations": ("colors", "not_reducible<color>"),
    "vector<bool>": ("bools", "not_reducible<std::vector<bool"),
    "vector of strings": ("strings", "not_reducible<std::vector"),
    "list": ("number_list", "not_reducible<std::"),
    "view of const": ("std::span(const_numbers)", "constant_elements<int>"),
    "literal": ("\"text\"", "constant_elements<char>"),
    "group": ("group", "not_reducible"),
    "view of bools": ("std::span(flags)", "may_be_no_bool"),
    "view of pairs": ("std::span(pairs)", "not_trivially_copyable"),
    "view of classes": ("std::span(widgets)", "enable_raw_bytes"),
    "device memory": ("device_numbers", "device_memory_needs_hfcomm_nccl_hpp|there_for_host_memory"),
}
SUM_CALLS = {
    "all_reduce": "(void)all_reduce({})",
    "all_reduce max": "(void)all_reduce({}, reduce_op::max)",
    "all_reduce_async": "(void)all_reduce_async({})",
    "reduce": "(void)hfcomm::reduce({}, 0)",
    "reduce_async": "(void)reduce_async({}, 0)",
    "scan": "(void)scan({})",
    "scan_async": "(void)scan_async({})",
    "exclusive_scan": "(void)hfcomm::exclusive_scan({})",
    "exclusive_scan_async": "(void)exclusive_scan_async({})",
}
# Memory whose elements a callable does not combine, because they are none.
FOLDED = {
    "view of bools": ("std::span(flags)", "may_be_no_bool"),
    "view of pairs": ("std::span(pairs)", "not_trivially_copyable"),
    "view of classes": ("std::span(widgets)", "enable_raw_bytes"),
    "literal": ("\"text\"", "not_serializable|constant_elements|elements_or_whole"),
}
FOLD_CALLS = {
    "all_reduce": "(void)all_reduce({}, pick)",
    "all_reduce_async": "(void)all_reduce_async({}, pick)",
    "reduce": "(void)hfcomm::reduce({}, 0, pick)",
    "scan": "(void)scan({}, pick)",
}
# Inputs and outputs that do not belong together.
MEMORY = {
    "const out": ("numbers, const_numbers", "constant_elements<int>"),
    "other type": ("numbers, doubles", "elements_of_the_same_type"),
    "out is a list": ("numbers, number_list", "no_buffer<std::.*list"),
    "out is a pointer": ("numbers, a_pointer", "a_pointer_has_no_length"),
    "out is vector<bool>": ("numbers, bools", "no_buffer<std::vector<bool"),
    "in is a list": ("number_list, numbers", "no_buffer<std::.*list"),
    "in is vector<bool>": ("bools, bools", "no_buffer<std::vector<bool"),
    "in has classes": ("widgets, widgets", "enable_raw_bytes"),
    "in has strings": ("strings, strings", "not_trivially_copyable"),
    "device in": ("device_numbers, numbers", "both_on_a_device|there_for_host_memory"),
    "device out": ("numbers, device_numbers", "both_on_a_device"),
}
MEMORY_CALLS = {
    "all_gather": "all_gather({})",
    "all_gather_async": "(void)all_gather_async({})",
    "gather": "gather({}, 0)",
    "gather_async": "(void)gather_async({}, 0)",
    "scatter": "scatter({}, 0)",
    "scatter_async": "(void)scatter_async({}, 0)",
    "reduce": "hfcomm::reduce({}, 0)",
    "reduce_async": "(void)reduce_async({}, 0)",
    "all_reduce": "all_reduce({})",
    "all_reduce_async": "(void)all_reduce_async({})",
    "reduce_scatter": "reduce_scatter({})",
    "reduce_scatter_async": "(void)reduce_scatter_async({})",
    "all_to_all": "all_to_all({})",
    "all_to_all_async": "(void)all_to_all_async({})",
    "scan": "scan({})",
    "scan_async": "(void)scan_async({})",
    "exclusive_scan": "hfcomm::exclusive_scan({})",
    "exclusive_scan_async": "(void)exclusive_scan_async({})",
}
CONTRIBUTIONS = {
    "number": ("a_number", "no_buffer<int>"),
    "list": ("number_list", "no_buffer<std::.*list"),
    "vector<bool>": ("bools", "may_be_no_bool"),
    "vector of classes": ("widgets", "enable_raw_bytes"),
    "vector of strings": ("strings", "no_buffer<std::vector<std::"),
    "pointer": ("a_pointer", "a_pointer_has_no_length"),
    "device memory": ("device_numbers", "there_for_host_memory"),
}
CONTRIBUTION_CALLS = {
    "all_gather_v": "(void)all_gather_v({})",
    "all_gather_v_async": "(void)all_gather_v_async({})",
    "gather_v": "(void)gather_v({})",
    "gather_v_async": "(void)gather_v_async({})",
    "all_to_all_v": "(void)all_to_all_v({}, numbers)",
    "all_to_all_v_async": "(void)all_to_all_v_async({}, numbers)",
}
DICTIONARIES = {
    "classes": ("widget_dictionary", "its_values_need_to_be_numbers"),
    "strings": ("string_dictionary", "its_values_need_to_be_numbers"),
    "multimap": ("equal_keys", "unique_sortable_keys"),
    "vector": ("numbers", "unique_sortable_keys"),
    "number": ("a_number", "unique_sortable_keys"),
    "string": ("text", "unique_sortable_keys"),
}
DICTIONARY_CALLS = {
    "reduce_dict": "(void)reduce_dict({})",
    "reduce_dict_async": "(void)reduce_dict_async({})",
    "all_reduce_dict": "(void)all_reduce_dict({}, reduce_op::sum)",
    "all_reduce_dict_async": "(void)all_reduce_dict_async({})",
}
# What is a view of constant characters to a call that sends.
TAKEN = {(call, "string_view") for call in ("send", "isend", "batch send")}

TABLES = [(OBJECT_CALLS, OBJECTS), (TYPE_CALLS, TYPES), (NO_LIST_CALLS, NO_LISTS), (RECEIVING_CALLS, RECEIVED), (RECV_CALLS, RECEIVED_MEMORY), (SUM_CALLS, SUMMANDS),
          (FOLD_CALLS, FOLDED), (MEMORY_CALLS, MEMORY), (CONTRIBUTION_CALLS, CONTRIBUTIONS), (DICTIONARY_CALLS, DICTIONARIES)]


def cells():
    for calls, arguments in TABLES:
        for function, call in calls.items():
            for kind, (argument, reason) in arguments.items():
                if (function, kind) not in TAKEN:
                    yield f"{function}: {kind}", call.format(argument), reason


def messages_of(compiler, path):
    """Returns whether the compiler is clang++, and all that it says of the file."""
    is_clang = "clang" in subprocess.run([*compiler, "--version"], capture_output=True, text=True, check=True).stdout
    limit = "-ferror-limit=0" if is_clang else "-fmax-errors=0"
    options = [limit, "-fno-diagnostics-color", "-fsyntax-only"]
    done = subprocess.run([*compiler, *options, path], capture_output=True, text=True, env=dict(os.environ, LC_ALL="C"), check=False)
    return is_clang, done.stderr


def split(text, path, count):
    """Returns the lines of the compiler's text by the line of the source of which they speak, and the errors of no line."""
    blocks = {number: [] for number in range(1, count + 1)}
    name = re.escape(path)
    begins = re.compile(rf"^{name}: In function .*cell_(\d+)\(\)")
    error = re.compile(rf"^{name}:(\d+):\d+: error:")
    lost, current, included = [], None, []
    for line in text.splitlines():
        if re.match(r"^(In file included from| +from )", line):  # stands before an error or a note
            included.append(line)
            continue
        if match := begins.match(line) or error.match(line):
            current = int(match[1])
        elif " error: " in line or current not in blocks:
            lost.append(line)
            continue
        blocks[current] += [*included, line]
        included = []
    return blocks, lost


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--show", default="", help="print the messages of cells whose name contains this")
    options, compiler = parser.parse_known_args()
    table = list(cells())
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "table.cpp")
        with open(path, "w", encoding="utf-8") as file:
            file.write(PREAMBLE + "#line 1\n")
            file.writelines(f"void cell_{number}() {{ {call}; }}\n" for number, (_, call, _) in enumerate(table, 1))
        is_clang, text = messages_of(compiler, path)
        blocks, lost = split(text, path, len(table))
    most = 120 if is_clang else 15
    problems = []
    for number, (name, call, reason) in enumerate(table, 1):
        lines = blocks[number]
        shown = "\n".join(lines[:60])
        if options.show and options.show in name:
            print(f"== {name}: {call}\n{shown}")
        if not lines:
            problems.append(f"{name}: {call}: compiles")
        elif len(lines) > most:
            problems.append(f"{name}: {call}: {len(lines)} lines")
        elif not re.search(reason, "\n".join(lines[:25] if is_clang else [next((line for line in lines if " error: " in line), "")])):
            problems.append(f"{name}: {call}: no {reason} in: {lines[0]}")
    print("\n".join(problems))
    if lost:
        print("of no cell:", *lost[:20], sep="\n")
    print(f"{len(table) - len(problems)} of {len(table)} calls are refused with a reason")
    return 1 if problems or lost else 0


sys.exit(main())
