"""What an FX graph says about its origin: the user's line of each node and the names of its inputs."""

from __future__ import annotations

import inspect
import itertools
import operator
import os
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import fx
from torch.utils.checkpoint import checkpoint

from thunder.capture.source import locate
from thunder.frontends.autograd_apply import autograd_function_apply
from thunder.frontends.binding import identifier
from thunder.ir.symbol import Source
from thunder.ir.trace import Names

_CHECKPOINT: Any = torch.ops.higher_order.tag_activation_checkpoint
_FUNCTION: Any = torch.ops.higher_order.autograd_function_apply
_GRAPHS = {_CHECKPOINT: 1, _FUNCTION: 2}
"""Calls of graphs: how many graphs their arguments begin with. The first graph takes the other arguments."""
_COMPARISONS = {getattr(operator, name): getattr(torch, name) for name in ("lt", "le", "gt", "ge", "eq", "ne")}
"""Of two tensors Python asks the fake first (it is of a subclass), which changes their order and so the layout."""
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
        if target is _FUNCTION and not transformed:
            return autograd_function_apply(*args, **kwargs)
        if target is _CHECKPOINT and not transformed:
            return _checkpointed(*args, **kwargs)
        if target in _COMPARISONS and all(isinstance(arg, torch.Tensor) for arg in args):
            target = _COMPARISONS[target]
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
    """Make inputs numbers of which the graph and those it calls only take ``item()``; returns their positions.

    Dynamo passes a float that has changed as such a tensor.
    """
    items = {place: _items(gm, node) for place, node in enumerate(gm.graph.find_nodes(op="placeholder"))}
    found = [place for place, taken in items.items() if taken]
    for item in {item for taken in items.values() for item in taken}:
        item.replace_all_uses_with(item.all_input_nodes[0])
        item.graph.erase_node(item)
    for part in _graphs(gm) if found else ():
        part.recompile()
    return found


def _items(gm: fx.GraphModule, node: fx.Node) -> list[fx.Node]:
    """The calls of ``item()`` on a value, also where it is passed to; empty if it has other uses."""
    items: list[fx.Node] = []
    for user in node.users:
        if (user.op, user.target) == ("call_method", "item"):
            items.append(user)
            continue
        if user.target not in _GRAPHS:
            return []
        called: Any = gm.get_submodule(user.args[0].target)  # type: ignore[union-attr, arg-type]  # a node of the body
        args = user.args[_GRAPHS[user.target] :]
        taking = called.graph.find_nodes(op="placeholder")[-len(args) :]  # in torch 2.10, after a context
        given = zip(taking, args, strict=True)
        inside = [_items(called, parameter) for parameter, arg in given if arg is node]
        if not all(inside):
            return []
        items += itertools.chain(*inside)
    return items


def _graphs(gm: fx.GraphModule) -> list[fx.GraphModule]:
    """The graph and all graphs inside of it."""
    return [part for part in gm.modules() if isinstance(part, fx.GraphModule)]


def restore_checkpoints(gm: fx.GraphModule) -> None:
    """Make checkpointed regions calls of ``checkpoint`` again: Dynamo's operator, run as it is, draws anew.

    (Or, in torch 2.10, does not checkpoint.)
    """
    for part in _graphs(gm):
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
