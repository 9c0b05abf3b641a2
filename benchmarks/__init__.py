"""What deedbox costs, each number beside a floor or a peer that is measured in the same run."""
