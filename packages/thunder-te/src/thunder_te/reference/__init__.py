"""The reference engine: FP8 values are real, products are computed in bfloat16, which holds them exactly."""
