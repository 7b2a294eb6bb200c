from thunder.extend import Executor, hookimpl


@hookimpl
def thunder_executors():
    return [Executor(name="bad_api", api=7)]
