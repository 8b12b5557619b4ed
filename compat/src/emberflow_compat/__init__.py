"""What the packages of this distribution share."""
