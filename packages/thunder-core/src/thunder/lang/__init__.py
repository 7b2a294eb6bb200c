"""The public torch API as the IR's vocabulary: names, literals, types and argument binding."""
