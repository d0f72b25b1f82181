"""How cost grows with size: figures over sizes, an exponent for each, and their pictures."""
