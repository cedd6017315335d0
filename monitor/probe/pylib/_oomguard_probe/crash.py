"""What is told of an exception that ends a rank."""
import os
import traceback as format

HERE = os.path.dirname(os.path.abspath(__file__))
MAX_MESSAGE = 4000    # characters
MAX_TRACEBACK = 8000  # characters, the tail: the innermost frames say where


def is_oom(kind, error):
    """By the class's name, which moved between versions (torch.cuda.OutOfMemoryError, torch.OutOfMemoryError), else by the text that
    cuBLAS, NCCL and old versions raise as a RuntimeError."""
    names = [cls.__name__ for cls in kind.__mro__]
    if "OutOfMemoryError" in names or "_OutOfMemoryError" in names:
        return True
    return issubclass(kind, RuntimeError) and "out of memory" in message(error)


def name(kind):
    module = getattr(kind, "__module__", None)
    return kind.__qualname__ if module in (None, "builtins", "__main__") else module + "." + kind.__qualname__


def message(error):
    try:
        return str(error)[:MAX_MESSAGE]
    except Exception:
        return "(its text can not be read)"


def text(kind, error, traceback):
    return "".join(format.format_exception(kind, error, traceback))[-MAX_TRACEBACK:]


def where(traceback):
    """The innermost frame that is not ours."""
    place = ""
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if not _is_ours(code):
            place = "%s:%d in %s" % (code.co_filename, traceback.tb_lineno, code.co_name)
        traceback = traceback.tb_next
    return place


def hide_our_frames(error, traceback):
    """Takes our frames out of the traceback, and of those of the exceptions that led to it."""
    seen = set()
    while traceback is not None or error is not None:
        _unlink(traceback)
        seen.add(id(error))
        error = error and (error.__cause__ or error.__context__)
        if error is None or id(error) in seen:
            return
        traceback = error.__traceback__


def _unlink(traceback):
    while traceback is not None:
        following = traceback.tb_next
        while following is not None and _is_ours(following.tb_frame.f_code):
            following = following.tb_next
        if following is not traceback.tb_next:
            traceback.tb_next = following
        traceback = following


def _is_ours(code):
    return code.co_filename.startswith(HERE)
