"""What a program calls: encoders scored, results as one object, comparisons and tables, shown in notebooks."""
