"""Where a score comes from: versions, commit, machine, and what tells one embedding from another."""
