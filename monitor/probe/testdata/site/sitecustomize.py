"""A sitecustomize of the user's own."""
import builtins

builtins.users_sitecustomize = __name__
