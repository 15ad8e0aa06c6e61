# SPDX-License-Identifier: MIT
"""Prints, for Meson, what an extension of the installed PyTorch needs, one a line: the suffix of its name, the folders
of headers separated by colons, those of libraries. Fails where PyTorch is not there, or without torch.distributed."""

import contextlib
import os
import sys
import sysconfig

with contextlib.redirect_stderr(open(os.devnull, "w", encoding="utf-8")):
    import torch
    import torch.distributed
    from torch.utils import cpp_extension

if not torch.distributed.is_available() or not torch._C._GLIBCXX_USE_CXX11_ABI:
    sys.exit(1)
print(sysconfig.get_config_var("EXT_SUFFIX"))
print(":".join([sysconfig.get_paths()["include"], *cpp_extension.include_paths()]))
print(":".join(cpp_extension.library_paths()))
