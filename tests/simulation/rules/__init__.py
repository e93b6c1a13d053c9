"""Each protocol rule switched off, to see that a checker notices. The switches are here, not in the product.

* `switch`: what a switch is
* `instead`: the broken functions
* `table`: all switches; each is also a scenario ``rule-...`` of ``scripts/simulate``
"""
