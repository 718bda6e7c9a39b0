"""What more processes, machines and runs at a time bring, and what they cost."""
