"""PyTorch's Inductor: all that this package uses of it is imported here. It is private to PyTorch.

| name | PyTorch |
| --- | --- |
| ``TracingContext.fw_metadata`` with ``bw_donated_idxs`` | 2.10 to 2.14 |
| ``compile_fx.compile_fx_inner``, ``decomposition.select_decomp_table``, ``graph.GraphLowering`` | 2.10 to 2.14 |
| ``async_compile.AsyncCompile`` with ``cpp_pybinding`` and ``wait``, which generated modules call | 2.10 to 2.14 |
| ``cpp_builder.CppBuilder``, ``CppTorchDeviceOptions`` | 2.10 to 2.14 |
| ``cpu_vec_isa.valid_vec_isa_list``, which codegen asks through its module, ``VecAVX512``, ``VecAVX2`` | 2.10 to 2.14 |
| ``torch.compiler._is_compiling_flag`` | 2.10 to 2.14 |
| ``torch._C._dynamo.guards._torchinductor_pyobject_tensor_data_ptr`` | 2.10 to 2.14 |
| ``torch._C._select_conv_backend``, ``_conv_determine_backend_memory_format`` | 2.10 to 2.14 |
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol

import torch
from torch import Tensor
from torch._dynamo.convert_frame import compile_lock
from torch._guards import TracingContext, tracing
from torch._inductor import async_compile, config, cpu_vec_isa, ir
from torch._inductor.async_compile import AsyncCompile
from torch._inductor.codecache import cache_dir
from torch._inductor.compile_fx import compile_fx_inner
from torch._inductor.cpp_builder import CppBuilder, CppTorchDeviceOptions
from torch._inductor.decomposition import select_decomp_table
from torch._inductor.graph import GraphLowering
from torch._inductor.virtualized import V
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

from thunder_inductor.decompositions import faster

DATA_OF_TENSOR = "_torchinductor_pyobject_tensor_data_ptr"
SIZE = "const int64_t"
"""The type of an argument of a kernel that is no tensor."""

_CONFIG = {
    "size_asserts": False,  # types are checked by the guards of the program
    "alignment_asserts": False,
    "comprehensive_padding": False,  # results have the strides of eager
    "layout_optimization": False,
    "cpp_wrapper": False,
    "triton.cudagraphs": False,
}


class Compiler(Protocol):
    """Who compiles C++ kernels."""

    def start(self, types: Sequence[str], source: str) -> Future[Callable[..., Any]]: ...


def cache_folder() -> Path:
    """Where Inductor keeps what it compiles."""
    return Path(cache_dir())


def decomposed(fn: Callable[..., Any], mode: FakeTensorMode, inputs: Sequence[Any]) -> GraphModule:
    """The graph of ATen operators that a function of fake tensors is, with Inductor's decompositions applied."""
    with compile_lock, _said_to_compile(), mode:
        return make_fx(fn, decomposition_table=faster(select_decomp_table()), tracing_mode="real")(*inputs)


@contextlib.contextmanager
def _said_to_compile() -> Iterator[None]:
    """Tracing is a state of the process: other threads run what is compiled if this is a compilation, as for Dynamo."""
    with _replaced(torch.compiler, "_is_compiling_flag", True):
        yield


def external(graph: GraphModule, mode: FakeTensorMode, inputs: Sequence[Any]) -> str:
    """What Inductor does for a graph instead of writing a kernel whose results depend on nothing but its arguments."""
    with compile_lock, _said_to_compile(), config.patch(_CONFIG), tracing(TracingContext(mode)):
        lowering = GraphLowering(graph, example_inputs=inputs, shape_env=mode.shape_env, is_inference=True)
        with V.set_graph_handler(lowering), V.set_fake_mode(mode):
            lowering.run(*inputs)
    for operation in lowering.operations:
        if isinstance(operation, ir.ExternKernel):
            called = getattr(operation, "op_overload", None) or getattr(operation, "python_kernel_name", None)
            return f"calls {called or type(operation).__name__}"
        data = getattr(operation, "data", None)
        if isinstance(data, ir.Scatter) and data.scatter_mode is not None:
            return "adds up values in an order that is not defined"
    output = next(iter(reversed(graph.graph.nodes)))
    dtypes = [node.meta["val"].dtype for node in output.args[0]]
    return "" if [made.get_dtype() for made in lowering.graph_outputs] == dtypes else "makes results of other dtypes"


def compiled(
    graph: GraphModule,
    mode: FakeTensorMode,
    inputs: Sequence[Any],
    spent: Sequence[int],
    compiler: Compiler,
    dtypes: Mapping[int, torch.dtype],
) -> Future[Callable[..., Sequence[torch.Tensor]]]:
    """The compiled graph, which takes tensors by position. Its results have the strides that they have in the graph.

    spent: the positions of the tensors that it may overwrite. dtypes: of results that are uint8 in the graph and
    returned as others, or that may lie in the memory of others.
    """
    code, unfinished = _code(graph, mode, inputs, spent, compiler)
    return _in_background(lambda: _with_dtypes(_finished(code, unfinished), dtypes))


def generated(
    graph: GraphModule, mode: FakeTensorMode, inputs: Sequence[Any], spent: Sequence[int], compiler: Compiler
) -> str:
    """The Python module that Inductor writes for a graph."""
    code, unfinished = _code(graph, mode, inputs, spent, compiler)
    _finished(code, unfinished)  # whoever compiles the same graph later is given the same module
    return str(code.source_code)


def _code(
    graph: GraphModule, mode: FakeTensorMode, inputs: Sequence[Any], spent: Sequence[int], compiler: Compiler
) -> tuple[Any, list[Callable[[], None]]]:
    """What Inductor makes of a graph, and what remains to be done until its kernels are there."""
    output = next(iter(reversed(graph.graph.nodes)))
    strides = [node.meta["val"].stride() for node in output.args[0]]
    output.meta["user_visible_output_idxs"] = list(range(len(strides)))
    output.meta["original_output_strides"] = strides
    context = TracingContext(mode)
    context.output_strides = []  # Inductor adds those of its results
    context.fakify_first_call = True  # with symbolic sizes they are symbolic
    if spent:  # Inductor overwrites what autograd saved for a backward, and nothing else
        read_of_it: Any = SimpleNamespace(bw_donated_idxs=list(spent), static_input_indices=[])
        context.fw_metadata = read_of_it
        _name_spent(graph, spent)
    unfinished: list[Callable[[], None]] = []
    with _compiling(compiler, unfinished), tracing(context):
        code = compile_fx_inner(graph, inputs, is_backward=bool(spent))
    made = [tuple(stride) if stride is not None else () for stride in context.output_strides]
    if made != strides:
        raise RuntimeError(f"Inductor lays results out as {made} instead of {strides}")
    return code, unfinished


def _name_spent(graph: GraphModule, spent: Sequence[int]) -> None:
    """Give inputs that may be overwritten other names: Inductor's cache keeps graphs by text, and not by that."""
    placeholders = graph.graph.find_nodes(op="placeholder")
    for place in spent:
        placeholders[place].target = placeholders[place].name = f"spent_{place}"
    graph.recompile()


def _finished(code: Any, unfinished: Sequence[Callable[[], None]]) -> Callable[..., Any]:
    for finish in unfinished:
        finish()
    call = code.current_callable
    return lambda *tensors: call(list(tensors))


def _with_dtypes(fn: Callable[..., Any], dtypes: Mapping[int, torch.dtype]) -> Callable[..., Any]:
    """A function that returns some of its results as of other dtypes of the same size."""
    if not dtypes:
        return fn

    def run(*tensors: Any) -> Any:
        results = list(fn(*tensors))
        for place, dtype in dtypes.items():
            results[place] = results[place].view(dtype)
        return results

    return run


def _in_background(fn: Callable[[], Any]) -> Future[Any]:
    """The result of a function that waits for others."""
    future: Future[Any] = Future()

    def run() -> None:
        try:
            future.set_result(fn())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="thunder-inductor", daemon=True).start()
    return future


@contextlib.contextmanager
def _compiling(compiler: Compiler, unfinished: list[Callable[[], None]]) -> Iterator[None]:
    """Inductor as it is used here; other threads that compile wait meanwhile."""
    with (
        compile_lock,
        _said_to_compile(),
        config.patch(_CONFIG),
        _replaced(async_compile, "AsyncCompile", _deferring(compiler, unfinished)),
        _replaced(cpu_vec_isa, "valid_vec_isa_list", _vector_extensions),
    ):
        yield


def _deferring(compiler: Compiler, unfinished: list[Callable[[], None]]) -> type[AsyncCompile]:
    """What a generated module starts its kernels with; to wait for them is left for later."""

    class Deferring(AsyncCompile):
        def cpp_pybinding(self, argtypes: list[str], source_code: str) -> Any:
            if all(type.endswith("*") or type == SIZE for type in argtypes):
                return compiler.start(argtypes, source_code)
            return super().cpp_pybinding(argtypes, source_code)

        def wait(self, scope: dict[str, Any]) -> None:
            unfinished.append(functools.partial(self._finish, scope))

        def _finish(self, scope: dict[str, Any]) -> None:
            for name, value in scope.items():
                if isinstance(value, Future):
                    scope[name] = value.result()
            super().wait(scope)

    return Deferring


@contextlib.contextmanager
def _replaced(module: Any, name: str, value: Any) -> Iterator[None]:
    old = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, old)


_all_vector_extensions = cpu_vec_isa.valid_vec_isa_list


class _Avx512(cpu_vec_isa.VecAVX512):
    def __bool__(self) -> bool:  # type: ignore[override]  # that of the base is a cache
        return True


class _Avx2(cpu_vec_isa.VecAVX2):
    def __bool__(self) -> bool:
        return True


@functools.cache
def _vector_extensions() -> list[Any]:
    """The vector extensions that PyTorch uses on this processor. Inductor would compile a program for each it knows."""
    known = {"AVX512": _Avx512, "AVX2": _Avx2}.get(torch.backends.cpu.get_cpu_capability())
    return [known()] if known is not None else _all_vector_extensions()


def stays_channels_last(input: Tensor, weight: Tensor, bias: Tensor | None, rest: Sequence[Any]) -> bool:
    """Whether PyTorch convolves an input in channels last as it is, with as many threads as there are now.

    rest: what follows the operands of ``torch.convolution``.
    """
    backend = torch._C._select_conv_backend(input, weight, bias, *rest)
    if str(backend).rpartition(".")[2].startswith("Slow"):  # they copy, and are for what no library takes
        return False
    return torch._C._conv_determine_backend_memory_format(input, weight, backend) is not torch.contiguous_format


def build_library(source: Path, library: Path) -> None:
    """Compile C++ source. Raises an error with the compiler's words."""
    options = _build_options()
    CppBuilder(name=library.stem, sources=str(source), BuildOption=options, output_dir=str(library.parent)).build()


@functools.cache
def build_command() -> str:
    """How kernels are compiled here: a part of what they depend on."""
    return f"{torch.__version__} {CppBuilder(name='o', sources='i', BuildOption=_build_options()).get_command_line()}"


def _build_options() -> CppTorchDeviceOptions:
    isa = next(iter(_vector_extensions()), cpu_vec_isa.invalid_vec_isa)
    return CppTorchDeviceOptions(vec_isa=isa, device_type="cpu", include_pytorch=False, shared=True)
