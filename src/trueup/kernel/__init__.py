"""Pure numerics on arrays: no names, no files, no entropy. Each module is compiled when first used."""
