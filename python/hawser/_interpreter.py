"""Imported before the extension module, whose state is that of the process: a second interpreter would replace it."""

import ctypes

_of = ctypes.PYFUNCTYPE(ctypes.c_void_p)
_current, _main = (_of((f"PyInterpreterState_{which}", ctypes.pythonapi)) for which in ("Get", "Main"))
if _current() != _main():
    raise ImportError("hawser works in the main interpreter of a process: import it there, not in a sub-interpreter")
