"""One call to a model, as layers of one signature: ``send(context)`` gives an outcome.

::

    Retried    books the call, and asks a second time where that may help
    StoodIn    lets a stand-in answer where calls are only counted
    Recorded   takes a known attempt from the tape; puts a new one there before it is acted on
    Budgeted   counts what a live request costs, and refuses it when the budget is spent
    Queued     waits for its turn and for the server; ends what takes too long
    backend    one exchange with the model

``pipeline`` puts them together. Each knows the one below it, and no other.
"""
