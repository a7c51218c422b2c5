"""The training and evaluation engine: no padding, a shared prefix computed once, logits only where they are used."""
