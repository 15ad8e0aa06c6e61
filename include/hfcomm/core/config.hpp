// SPDX-License-Identifier: MIT
#pragma once

/// The two ways to use hfcomm, which all files of one program share:
///
///   header-only  nothing to do: the entrances (<hfcomm/comm.hpp>, ...) bring all definitions along.
///   compiled     HFCOMM_COMPILED is defined for every file. Headers then hold declarations and templates, and one file
///                of the program includes <hfcomm/impl.hpp>, which holds everything else.
///
/// A definition that the compiled way keeps out of other files is marked HFCOMM_INLINE and stands in a header named
/// detail/*-inl.hpp, which <hfcomm/impl.hpp> includes. A virtual function is marked where it is declared, too: else
/// every file of a header-only program has the table of its class, and all that this refers to.
#if defined(HFCOMM_COMPILED)
#define HFCOMM_INLINE
#define HFCOMM_OTHER_WAY "hfcomm_error_another_file_was_compiled_without_HFCOMM_COMPILED"
#else
#define HFCOMM_INLINE inline
#define HFCOMM_OTHER_WAY "hfcomm_error_another_file_was_compiled_with_HFCOMM_COMPILED"
#endif

/// Marks a function with state of the process or of a thread. Its modules share that, also those that are compiled with
/// -fvisibility=hidden.
#define HFCOMM_PROCESS_STATE [[gnu::visibility("default")]]

// Files of both ways in one program would silently break the one-definition rule, so they do not link. The linker keeps
// the first group of this name. A file of the other way refers to a symbol of the group that was dropped, and the
// linker prints that symbol's name.
asm(".pushsection .rodata.hfcomm_way,\"aG\",@progbits,hfcomm_way,comdat\n"
    ".globl " HFCOMM_OTHER_WAY "\n" HFCOMM_OTHER_WAY
    ":\n"
    ".byte 0\n"
    ".popsection\n"
    ".pushsection .data.rel.ro.hfcomm_way_used,\"awR\",@progbits\n"
    ".balign 8\n"
    ".quad " HFCOMM_OTHER_WAY
    "\n"
    ".popsection\n");
#undef HFCOMM_OTHER_WAY
