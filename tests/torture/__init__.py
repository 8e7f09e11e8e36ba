"""A torture test: bad options, bad calls, damaged files, bad environments, kills. `make torture`.

Nothing here is collected by pytest. Each case ends as one of OUTCOMES in `cases.py`.
"""
