"""DeepEP's interface on FerryEP: programs written for ``deep_ep`` run unchanged.

docs/deepep.md says, argument by argument, what is the same, better, accepted or refused.
"""

from deep_ep._ownership import refuse_other_owner

refuse_other_owner()

import ferry_ep  # noqa: E402
import torch  # noqa: E402

from deep_ep._config import Config  # noqa: E402
from deep_ep.buffer import Buffer  # noqa: E402
from deep_ep.utils.event import EventHandle, EventOverlap  # noqa: E402

topk_idx_t = torch.int64

# The interface's version, and whose it is.
__version__ = f"1.2.1+ferry.{ferry_ep.__version__}"

__all__ = ["Buffer", "Config", "EventHandle", "EventOverlap", "topk_idx_t"]
