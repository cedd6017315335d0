"""Watches the calls of a Python function without replacing it: it stays the object that it is under all its names, with its signature,
its source and its line numbers, so that it can be pickled, and no frame of ours stands between its caller and its body.

Its source is compiled once more, with the body inside `with watch.around(self, closure):`, None for a parameter that it lacks. Where
the source is not that of the loaded code (something else has rewritten it), nothing is touched.
"""
import __future__
import ast
import dis
import inspect
import tokenize
import warnings

MARK = "oomguard's watch"  # stands for the watch until the code is compiled
AROUND = "with %r.around(%s, %s):\n    pass\n"
PASSED_ON = ("self", "closure")
# Dynamo knows constants of a few types only. It folds is_compiling() to True, so that it sees the body alone.
UNLESS_COMPILING = "if torch.compiler.is_compiling():\n    pass\n    return\n"

FUTURE = sum({getattr(__future__, name).compiler_flag for name in __future__.all_feature_names} - {inspect.CO_NESTED})


class Watch:
    """What happens at a call: begin(self, closure) before it, and after it end(self, what begin returned, the error or None)."""

    def __init__(self, guard, begin=None, end=None):
        self.guard, self.begin, self.end = guard, begin, end

    def around(self, subject, closure):
        return Call(self, subject, closure)

    def __deepcopy__(self, memo):
        return self  # a constant, when dynamo copies the code that it stands in


class Call:
    __slots__ = ("watch", "subject", "closure", "begun")

    def __init__(self, watch, subject, closure):
        self.watch, self.subject, self.closure, self.begun = watch, subject, closure, None

    def __enter__(self):
        watch = self.watch
        if watch.begin is not None:
            self.begun = watch.guard(watch.begin, self.subject, self.closure)

    def __exit__(self, kind, error, traceback):
        watch = self.watch
        if watch.end is not None:
            watch.guard(watch.end, self.subject, self.begun, error)


def attach(function, watch):
    """Watches a function, or the one inside its decorators."""
    function = inspect.unwrap(function)
    function.__code__ = watched(function, watch)


def watched(function, watch):
    """The function's code with the watch around its body."""
    code = function.__code__
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the source: they were told, or not, when it was compiled first
        tree = parse(function)
        if shape(compiled(tree, code)) != shape(code):
            raise ValueError("the source of %s is not that of its loaded code" % function.__qualname__)
        put_around(definition(tree, code.co_name), function)
        new = compiled(tree, code)
    return new.replace(co_consts=tuple(watch if type(value) is str and value == MARK else value for value in new.co_consts))


def parse(function):
    """The function's definition, at its own lines and inside its classes and functions: they decide on names like __this, on super()
    and on what is a variable of the function around it."""
    code = function.__code__
    with tokenize.open(code.co_filename) as file:
        lines = file.readlines()
    block = inspect.getblock(lines[code.co_firstlineno - 1:])
    head = scopes(function.__qualname__.split(".")[:-1], [name for name in code.co_freevars if name != "__class__"])
    if not head and block[0][:1].isspace():
        head = ["if 1:\n"]
    tree = ast.parse("".join(head + block))
    return ast.increment_lineno(tree, code.co_firstlineno - 1 - len(head))


def scopes(names, variables):
    """The heads of the classes and functions around a definition, each indented by one more blank."""
    head = []
    for name, following in zip(names, names[1:] + [""]):
        if name != "<locals>":
            kind = "def %s(" + ", ".join(variables) + "):\n" if following == "<locals>" else "class %s:\n"
            head.append(" " * len(head) + kind % name)
    return head


def definition(tree, name):
    return next(node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == name)


def compiled(tree, like):
    todo = [compile(tree, like.co_filename, "exec", like.co_flags & FUTURE, True)]
    while todo:
        code = todo.pop()
        if code.co_name == like.co_name:
            return code
        todo += [value for value in code.co_consts if inspect.iscode(value)]
    raise ValueError("no function in the source")


def shape(code):
    """What two codes of the same source have in common. Their instructions may differ: the compiler treats names that are imported
    at the top of the file in another way."""
    constants = [value for value in code.co_consts if not inspect.iscode(value)]
    lines = {line for _, line in dis.findlinestarts(code)}
    return (code.co_argcount, code.co_kwonlyargcount, code.co_flags, code.co_firstlineno, code.co_names, code.co_varnames,
            code.co_freevars, code.co_cellvars, constants, lines)


def put_around(function, loaded):
    """Puts the watch around the body of a definition; its docstring stays the first statement."""
    documented = ast.get_docstring(function, clean=False) is not None
    head, body = function.body[:documented], function.body[documented:]
    scope = ScopeStatements()
    body = [scope.visit(statement) for statement in body]
    parameters = {parameter.arg for parameter in function.args.args}
    text = AROUND % ((MARK,) + tuple(name if name in parameters else None for name in PASSED_ON))
    if hasattr(getattr(loaded.__globals__.get("torch"), "compiler", None), "is_compiling"):
        text = UNLESS_COMPILING + text
    ours = ast.parse(text).body
    for statement in ours:
        for node in ast.walk(statement):
            ast.copy_location(node, body[0])
        statement.body[:1] = body
    function.body = head + scope.found + ours


class ScopeStatements(ast.NodeTransformer):
    """Takes out `global x`, which must come before every use of x: to the top, since the body may stand there twice."""

    def __init__(self):
        self.found = []

    def visit_Global(self, node):
        self.found.append(node)
        return ast.copy_location(ast.Pass(), node)

    visit_Nonlocal = visit_Global

    def visit_FunctionDef(self, node):
        return node

    visit_AsyncFunctionDef = visit_ClassDef = visit_FunctionDef
