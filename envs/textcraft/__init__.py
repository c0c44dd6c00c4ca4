"""Crafting by recipes that are generated: TextCraft of ADaPT (arXiv 2311.05772) and AgentGym."""
