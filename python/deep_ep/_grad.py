"""Calls that no gradient passes through: programs wrap them in autograd functions of their own."""

from __future__ import annotations

from typing import Any, Callable, TypeVar, cast

import torch

Function = TypeVar("Function", bound=Callable[..., Any])


def without_grad(function: Function) -> Function:
    """torch.no_grad(), keeping the function's signature for type checkers."""
    return cast(Function, torch.no_grad()(function))
