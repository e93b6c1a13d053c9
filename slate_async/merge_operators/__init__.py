"""Merge operators: what a database makes of a value and the operands that were written onto it.

* `protocol`: what an operator is
* `values`: operators of numbers, byte strings and sets; `json_patch`: of JSON
* `registry`: operators by name
* `guarded`: an operator called so that nothing it does can cost a row

Nothing here does I/O.
"""
