"""Shared libraries of kernels: several in one translation unit, since to parse the headers takes longer than a kernel.

A kernel is C++ source with one function ``kernel``, as Inductor writes it, and the types of its arguments: pointers to
the data of tensors, and sizes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Any

from thunder_inductor import inductor

Source = tuple[str, Sequence[str], str]
"""A kernel: the name of its Python function, the types of its arguments, its source."""

_MODULE = "kernels"
_INCLUDE = re.compile(r"^\s*#include.*$", re.MULTILINE)
_LINKAGE = re.compile(r'extern\s+"C"')

_HEAD = """\
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <exception>

static void* (*data_of)(PyObject* tensor);

static PyObject* wrong_count(Py_ssize_t expected, Py_ssize_t given) {
    return PyErr_Format(PyExc_TypeError, "the kernel takes %zd arguments, not %zd", expected, given);
}
"""

_KERNEL = """
namespace of_{name} {{
{source}
}}

static PyObject* {name}(PyObject*, PyObject* const* args, Py_ssize_t count) {{
    if (count != {count}) return wrong_count({count}, count);
    try {{
        of_{name}::kernel({arguments});
    }} catch (const std::exception& error) {{
        PyErr_SetString(PyExc_RuntimeError, error.what());
        return nullptr;
    }}
    Py_RETURN_NONE;
}}
"""

_TAIL = """
static PyMethodDef methods[] = {{{methods} {{nullptr, nullptr, 0, nullptr}}}};
static PyModuleDef definition = {{PyModuleDef_HEAD_INIT, "{module}", nullptr, -1, methods}};

PyMODINIT_FUNC PyInit_{module}(void) {{
    PyObject* guards = PyImport_ImportModule("torch._C._dynamo.guards");
    PyObject* address = guards ? PyObject_GetAttrString(guards, "{data_of}") : nullptr;
    Py_XDECREF(guards);
    if (!address) return nullptr;
    data_of = reinterpret_cast<void* (*)(PyObject*)>(PyLong_AsVoidPtr(address));
    Py_DECREF(address);
    return data_of ? PyModule_Create(&definition) : nullptr;
}}
"""


def source_of(kernels: Iterable[Source]) -> str:
    """The translation unit of an extension module with a function for each kernel, taking arguments by position."""
    kernels = tuple(kernels)
    includes = dict.fromkeys(line.strip() for _, _, source in kernels for line in _INCLUDE.findall(source))
    methods = "".join(f'{{"{name}", (PyCFunction)(void*){name}, METH_FASTCALL, nullptr}}, ' for name, _, _ in kernels)
    parts = [_function(*kernel) for kernel in kernels]
    tail = _TAIL.format(methods=methods, module=_MODULE, data_of=inductor.DATA_OF_TENSOR)
    return "\n".join([*includes, _HEAD, *parts, tail])


def _function(name: str, types: Sequence[str], source: str) -> str:
    """A kernel in a namespace of its own, where C linkage would be that of all others, and its binding."""
    body = _LINKAGE.sub("static", _INCLUDE.sub("", source))
    arguments = ", ".join(_argument(place, type) for place, type in enumerate(types))
    return _KERNEL.format(name=name, source=body, count=len(types), arguments=arguments)


def _argument(place: int, type: str) -> str:
    if type == inductor.SIZE:
        return f"PyLong_AsLongLong(args[{place}])"
    return f"static_cast<{type}>(data_of(args[{place}]))"


def build(source: str, path: Path) -> None:
    """Compile a translation unit into a shared library. Raises RuntimeError with the compiler's words if it fails."""
    text = path.with_suffix(".cpp")
    text.write_text(source)
    inductor.build_library(text, path)


def load(path: Path, name: str) -> Callable[..., Any]:
    """The function of a library's kernel."""
    fn = getattr(_module(str(path.resolve())), name)
    assert callable(fn)
    return fn


@cache
def _module(path: str) -> ModuleType:
    loader = ExtensionFileLoader(_MODULE, path)
    spec = spec_from_loader(_MODULE, loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module
