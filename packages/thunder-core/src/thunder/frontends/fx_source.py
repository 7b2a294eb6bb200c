"""What an FX graph says about its origin: the user's line of each node and the names of its inputs."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import fx
from torch.utils.checkpoint import checkpoint

from thunder.capture.record import locate
from thunder.frontends.autograd_apply import autograd_function_apply
from thunder.frontends.binding import identifier
from thunder.ir.symbol import Source
from thunder.ir.trace import Names

_CHECKPOINT: Any = torch.ops.higher_order.tag_activation_checkpoint
_HOLDERS = re.compile(r"_(?:modules|parameters|buffers)_")
_TORCH = os.path.dirname(torch.__file__) + os.sep
_FRAME = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+), in .*(?:\n    (?P<text>.*))?', re.MULTILINE)


class LocatingInterpreter(fx.Interpreter):
    """Interprets a graph once and tells the recorder the user's line of each node. ``line`` is the last one."""

    def __init__(self, gm: fx.GraphModule) -> None:
        super().__init__(gm)
        self.extra_traceback = False  # errors reach the user as they are: Thunder's own name the line already
        self.line: Source | None = None

    def run(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().run(*args, **kwargs)
        finally:
            locate(None)

    def run_node(self, n: fx.Node) -> Any:
        stack = n.meta.get("stack_trace")
        if stack is not None:  # Dynamo gives none for switches of grad mode and autocast
            self.line = user_line(stack)
            locate(self.line)
        return super().run_node(n)

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        transformed = torch._C._functorch.maybe_current_level() is not None
        if target is torch.ops.higher_order.autograd_function_apply and not transformed:
            return autograd_function_apply(*args, **kwargs)
        return super().call_function(target, args, kwargs)


@lru_cache(maxsize=4096)
def user_line(stack: str) -> Source | None:
    """The innermost frame of a printed stack that is not PyTorch's; of PyTorch's if there is no other."""
    frames = list(_FRAME.finditer(stack))
    if not frames:
        return None
    frame = next((frame for frame in reversed(frames) if not frame["file"].startswith(_TORCH)), frames[-1])
    return Source(frame["file"], int(frame["line"]), (frame["text"] or "").strip())


def modules_of(fn: Callable[..., Any]) -> dict[str, torch.nn.Module]:
    """The modules that a program refers to, by the name it has for them; the one it belongs to has none."""
    owner = fn if isinstance(fn, torch.nn.Module) else getattr(fn, "__self__", None)
    if isinstance(owner, torch.nn.Module):
        return {"": owner}
    if not inspect.isfunction(fn):
        return {}
    names = inspect.getclosurevars(fn)
    known = {**names.globals, **names.nonlocals}
    return {name: value for name, value in known.items() if isinstance(value, torch.nn.Module)}


def take_numbers(gm: fx.GraphModule) -> list[int]:
    """Make inputs numbers of which the graph only takes ``item()``; returns their positions.

    Dynamo passes a float that has changed as such a tensor.
    """
    found = []
    for place, node in enumerate(gm.graph.find_nodes(op="placeholder")):
        items = list(node.users)
        if items and all((user.op, user.target) == ("call_method", "item") for user in items):
            found.append(place)
            for item in items:
                item.replace_all_uses_with(node)
                gm.graph.erase_node(item)
    if found:
        gm.recompile()
    return found


def restore_checkpoints(gm: fx.GraphModule) -> None:
    """Make checkpointed regions calls of ``checkpoint`` again: Dynamo's operator, run as it is, draws anew."""
    for part in [part for part in gm.modules() if isinstance(part, fx.GraphModule)]:
        for node in part.graph.find_nodes(op="call_function", target=_CHECKPOINT):
            node.target = _checkpointed
        part.recompile()


def _checkpointed(region: fx.GraphModule, *args: Any, **kwargs: Any) -> Any:
    own, given = _CHECKPOINT.divide_kwargs(kwargs)
    if "_checkpoint_context_fn" in region.meta:
        own = {**own, "context_fn": region.meta["_checkpoint_context_fn"]}
    return checkpoint(region, *args, **{**own, "use_reentrant": False}, **given)


def input_names(
    placeholders: Sequence[fx.Node], values: Sequence[Any], modules: Mapping[str, torch.nn.Module]
) -> list[str]:
    """A unique Python name for each input of a graph from Dynamo.

    Parameters and buffers of ``modules`` are known by identity and named after their path (``fc1_weight``); other
    inputs are named after the expression they come from, which Dynamo spells in the name of the placeholder.
    """
    paths = _paths(modules)
    names = Names()
    stems = [paths.get(id(value)) or _stem(str(node.target)) for node, value in zip(placeholders, values)]
    return [names.fresh(stem) for stem in stems]


def _paths(modules: Mapping[str, torch.nn.Module]) -> dict[int, str]:
    paths: dict[int, str] = {}
    for prefix, module in modules.items():
        for path, tensor in (*module.named_parameters(prefix), *module.named_buffers(prefix)):
            paths.setdefault(id(tensor), identifier(path))
    return paths


def _stem(target: str) -> str:
    """``L_self_modules_fc1_parameters_weight_`` came from ``L['self']._modules['fc1']._parameters['weight']``."""
    words = _HOLDERS.sub("_", target).strip("_")
    return identifier(re.sub(r"^[LG]_(?:self_)?", "", words) or target)
