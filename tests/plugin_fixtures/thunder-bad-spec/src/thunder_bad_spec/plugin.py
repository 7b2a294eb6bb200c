from thunder.extend import Executor, Op, hookimpl


@hookimpl
def thunder_executors():
    return [Executor(name="bad_spec", symbols=(Op("elsewhere.mm", impl="thunder_bad_spec:mm"),))]
