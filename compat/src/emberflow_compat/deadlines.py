"""Every deadline and interval of this distribution; signatures show them as the old libraries did."""
