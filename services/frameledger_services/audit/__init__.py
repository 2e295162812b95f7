"""Reading, verifying, proving and rebuilding what is stored; nothing here causes an effect of an old frame again."""
