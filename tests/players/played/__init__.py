"""The parts of ``agent.py``: how each CLI speaks, what an agent does, what is remembered of its calls."""
