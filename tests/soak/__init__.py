"""Many ralphs for hours with faults all the time: does anything grow that no rule of retention bounds?"""
