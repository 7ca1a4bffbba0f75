"""Effects of NodePortLocal on a Node."""
