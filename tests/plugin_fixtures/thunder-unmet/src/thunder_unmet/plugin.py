from thunder.extend import Cuda, Distribution, Executor, hookimpl


@hookimpl
def thunder_executors():
    return [Executor(name="unmet", needs=(Cuda(min=(8, 9)), Distribution("a-distribution-nobody-has", ">=2.0")))]
