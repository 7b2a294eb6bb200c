from thunder.extend import Executor, hookimpl


@hookimpl
def thunder_executors():
    return [Executor(name="example")]
