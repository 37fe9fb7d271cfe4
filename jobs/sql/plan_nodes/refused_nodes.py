"""Nodes whose refusal says more than their class: where they stand, or what they came from."""





