"""In the KEEPER: the process that ends a node, whatever happens around it. Standard library only."""
