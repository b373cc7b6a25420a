"""``Buffer``, under the name that DeepEP 2 gives its module."""

from deep_ep.buffer import Buffer
from deep_ep.utils.event import EventHandle, EventOverlap

__all__ = ["Buffer", "EventHandle", "EventOverlap"]
