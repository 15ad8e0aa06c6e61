# SPDX-License-Identifier: MIT
"""Builds the extension with the flags of the installed PyTorch. HFCOMM_INCLUDE: hfcomm's headers, if not of this tree."""

import os
import pathlib

from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CppExtension

here = pathlib.Path(__file__).resolve().parent
headers = os.environ.get("HFCOMM_INCLUDE", str(here.parent.parent / "include"))

setup(
    ext_modules=[
        CppExtension(
            "_hfcomm_torch",
            ["module.cpp"],
            include_dirs=[headers],
            extra_compile_args=["-std=c++20", "-O2"],
        )
    ],
    cmdclass={"build_ext": BuildExtension},
)
