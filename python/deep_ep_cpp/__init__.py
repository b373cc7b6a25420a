"""Where DeepEP 1 keeps its compiled parts."""

from deep_ep import Buffer, Config, EventHandle, topk_idx_t

__all__ = ["Buffer", "Config", "EventHandle", "topk_idx_t"]
