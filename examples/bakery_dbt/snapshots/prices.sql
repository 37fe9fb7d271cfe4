{% snapshot price_history %}
{{ config(unique_key='sku', strategy='timestamp', updated_at='changed_at') }}
select sku, name, price_cents, changed_at from {{ ref('raw_products') }}
{% endsnapshot %}
