# SPDX-License-Identifier: MIT
"""Registers hfcomm as a backend of torch.distributed: import it before init_process_group("hfcomm")."""

import torch  # loads the libraries that the extension needs
import torch.distributed

from _hfcomm_torch import make_backend

if int(torch.__version__.split(".")[0]) < 2:
    torch.distributed.Backend.register_backend("hfcomm", make_backend)
else:
    torch.distributed.Backend.register_backend("hfcomm", make_backend, devices=["cpu"])
