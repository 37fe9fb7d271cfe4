{% macro cents_to_price(column) %}cast({{ column }} / 100 as decimal(10, 2)){% endmacro %}
