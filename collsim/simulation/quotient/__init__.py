"""Large machines by symmetry: a small part stands for the whole."""
