"""Compiled kernels without Numba: their machine code, kept when Numba compiled or loaded it, run by LLVM alone.

To import Numba and to load a kernel from its cache takes 0.5 s and 100 MB; llvmlite does it in 0.05 s. Kept is the
object that Numba's own cache holds, beside it, under everything that it depends on: the source, the versions, the
processor, the settings and the kinds of arguments. What is missing, damaged or of another kind is left to Numba.
Imports NumPy, and llvmlite where a kernel is loaded.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import struct
import sys
from collections.abc import Callable, Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

__all__ = ["Kernel", "Made", "keep", "kind_of", "loaded"]

DIGEST_BYTES = 32
RESULTS = ("none", "int64")
"""What a kernel may return."""
UNUSED = ("NRT_", "numba_", "Py", "_Py")
"""Beginnings of what only errors and references call, which kernels have none of: they would abort."""
LIBC = frozenset(("memcpy", "memmove", "memset"))

Kernel = Callable[[tuple[Any, ...]], Any]
ADDRESS, NUMBER, REAL = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double


def kind_of(given: Any) -> Any:
    """Return what decides how an argument is handed over, as JSON has it; None if it is of no kind that is known."""
    if isinstance(given, np.ndarray):
        flags = given.flags
        order = "C" if flags.c_contiguous else "F" if flags.f_contiguous else "A"
        return [_dtype(given.dtype), given.ndim, order, bool(flags.writeable), bool(flags.aligned)]
    if isinstance(given, tuple):
        kinds = [kind_of(each) for each in given]
        return None if None in kinds else kinds
    if isinstance(given, np.void):
        return f"record {_dtype(given.dtype)}"
    if type(given) is int:
        return "int" if -(2**63) <= given < 2**63 else None
    return {np.int64: "int", float: "float", np.float64: "float"}.get(type(given))


@cache
def _dtype(dtype: np.dtype[Any]) -> str:
    return str(np.dtype((np.void, dtype)).descr if dtype.names else dtype.str)


def _flat(given: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the type and the value of each number that an argument is handed over as."""
    if isinstance(given, tuple):
        for each in given:
            yield from _flat(each)
    elif isinstance(given, np.ndarray):
        # Nobody counts references, so there is no owner
        yield from ((ADDRESS, None), (ADDRESS, None), (NUMBER, given.size), (NUMBER, given.itemsize))
        yield ADDRESS, given.ctypes.data
        yield from ((NUMBER, each) for each in (*given.shape, *given.strides))
    elif isinstance(given, np.void):
        yield ADDRESS, given.__array_interface__["data"][0]  # of the array that it is a part of
    else:
        yield (REAL, given) if isinstance(given, float) else (NUMBER, given)


class Made(NamedTuple):
    """What Numba made of a kernel: its name in the object, the type of what it returns, and the object."""

    symbol: str
    result: str
    code: bytes


def keep(name: str, source: Path, kinds: Any, made: Made) -> bool:
    """Keep a kernel for such arguments; return False if that cannot be done."""
    symbol, result, code = made
    needs = _undefined(code)
    if result not in RESULTS or needs is None or not all(each in LIBC or each.startswith(UNUSED) for each in needs):
        return False
    path = _path(name, source, kinds)
    if path is None:
        return False
    head = json.dumps({"symbol": symbol, "result": result, "needs": needs}).encode()
    content = struct.pack("<q", len(head)) + head + code
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f"{path.name}.{os.getpid()}.tmp")
        partial.write_bytes(hashlib.sha256(content).digest() + content)
        partial.replace(path)
    except OSError:
        return False
    return True


def loaded(name: str, source: Path, kinds: Any) -> Kernel | None:
    """Return the kernel that was kept for such arguments; None if there is none that is sound."""
    try:
        path = _path(name, source, kinds)
        content = path.read_bytes() if path else b""
        digest, rest = content[:DIGEST_BYTES], content[DIGEST_BYTES:]
        if not rest or hashlib.sha256(rest).digest() != digest:
            return None
        (length,) = struct.unpack_from("<q", rest)
        head = json.loads(rest[8 : 8 + length])
        return _kernel(head, rest[8 + length :])
    except Exception:  # whatever is amiss, Numba does it
        return None


def _kernel(head: dict[str, Any], code: bytes) -> Kernel:
    """Return the function in an object file."""
    import llvmlite.binding as llvm

    engine = _engine()
    stop = ctypes.cast(ctypes.CDLL(None).abort, ctypes.c_void_p).value
    for each in head["needs"]:
        if llvm.address_of_symbol(each) is None:
            llvm.add_symbol(each, stop)
    engine.add_object_file(llvm.object_file.ObjectFileRef.from_data(code))
    engine.finalize_object()
    address = engine.get_function_address(head["symbol"])
    if not address:
        raise ValueError(head["symbol"])
    function = ctypes.CFUNCTYPE(ctypes.c_int32)(address)  # releases the lock of the interpreter

    def run(given: tuple[Any, ...]) -> Any:
        result, error = ctypes.c_int64(0), ctypes.c_void_p(None)
        flat = list(_flat(given))
        values = [kind(value) for kind, value in flat]
        if function(ctypes.byref(result), ctypes.byref(error), *values):
            raise RuntimeError(f"the kernel {head['symbol']} failed")
        return result.value if head["result"] == "int64" else None

    return run


@cache
def _engine() -> Any:
    """Return what runs machine code in this process; it has to stay as long as its functions are used."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(jit=True)
    return llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)


def _path(name: str, source: Path, kinds: Any) -> Path | None:
    """Return the file of a kernel for such arguments; None if there is no place for it or this is no such system."""
    folder = _folder()
    if folder is None or sys.platform != "linux" or sys.byteorder != "little":
        return None
    told = json.dumps([_stamp(source), name, kinds])
    return folder / f"{source.stem}.{name}-{hashlib.sha256(told.encode()).hexdigest()[:24]}.native"


@cache
def _folder() -> Path | None:
    """Return where kernels are kept: where Numba is told to keep its own, beside the compiled Python, or at home."""
    if told := os.environ.get("NUMBA_CACHE_DIR"):
        return Path(told) / "collsim"
    own = Path(__file__).parent
    if os.access(own, os.W_OK):
        return own / "__pycache__"
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "collsim"
    except RuntimeError:  # nobody's home
        return None


@cache
def _stamp(source: Path) -> list[str]:
    """Return all that the machine code of a file of kernels depends on."""
    import llvmlite.binding as llvm

    files = [source, Path(__file__)]
    for package in ("numba", "llvmlite"):
        spec = find_spec(package)
        if spec is None or spec.origin is None:
            raise ValueError(package)
        files.append(Path(spec.origin).parent / "_version.py")
    settings = sorted(item for item in os.environ.items() if item[0].startswith("NUMBA_"))
    settings = [item for item in settings if item[0] != "NUMBA_CACHE_DIR"]
    features = llvm.get_host_cpu_features().flatten()
    own = [hashlib.sha256(path.read_bytes()).hexdigest() for path in files]
    return [*own, sys.version, llvm.get_host_cpu_name(), features, str(settings)]


def _undefined(code: bytes) -> list[str] | None:
    """Return the names that an object file needs from elsewhere; None if it is no ELF file of 64 bits."""
    if code[:6] != b"\x7fELF\x02\x01":
        return None
    (sections,) = struct.unpack_from("<q", code, 40)
    size, count = struct.unpack_from("<HH", code, 58)
    heads = [struct.unpack_from("<IIQQQQIIQQ", code, sections + size * i) for i in range(count)]
    found = []
    for _, kind, _, _, at, length, link, _, _, entry in heads:
        if kind != 2:  # the table of symbols
            continue
        names = heads[link][4]
        for place in range(at + entry, at + length, entry):
            name, _, _, section = struct.unpack_from("<IBBH", code, place)
            if section == 0:
                begin = names + name
                found.append(code[begin : code.index(b"\0", begin)].decode())
    return found
