"""Where conversations are kept: snapshots, the journal between them, and the stores for both.

    ids.py           ids of snapshots: made, and checked
    snapshot.py      one point of a conversation, as a value; json_form.py: its JSON form; migrations.py: older forms
    summary.py       what a list shows; pages of it, and their cursors
    protocol.py      what a store is, in two colours, and the rules that every store keeps
    journal.py       what happened since the newest snapshot, and how to go on from there
    entries.py       the JSON form of the journal's entries
    rows.py          how a snapshot is divided into rows, for stores that write only what is new
    records.py       how the rows of a store are sealed and opened
    searching.py     what a search looks at and for
    async_store.py   any plain store for asyncio, in worker threads
    sealing/         encryption of what a store keeps
    file/, sqlite/, postgres/   the stores

Nothing is imported here: a program uses one store.
"""
