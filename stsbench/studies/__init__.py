"""Studies: many trainings that differ in a value or two, each trained once and scored."""
