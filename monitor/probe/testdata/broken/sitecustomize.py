"""A sitecustomize that fails as USERS_SITECUSTOMIZE says."""
import os
import sys

how = os.environ.get("USERS_SITECUSTOMIZE")
if how == "raise":
    raise ValueError("broken")
if how == "import":
    import there_is_no_such_module  # noqa: F401
if how == "exit":
    sys.exit(3)
if how == "gone":
    del sys.modules[__name__]
