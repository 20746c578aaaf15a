"""The model: parameters of a chain, priors above them, moves of scale, draws that are kept."""
