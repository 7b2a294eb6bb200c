from thunder.extend import hookimpl


@hookimpl
def thunder_executors():
    raise OSError("the disk is on fire")
