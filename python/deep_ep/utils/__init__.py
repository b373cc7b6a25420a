"""Events here, as in DeepEP 1; helpers of its test scripts in ``envs``, ``math`` and ``testing``."""

from deep_ep.utils.event import EventHandle, EventOverlap

__all__ = ["EventHandle", "EventOverlap"]
