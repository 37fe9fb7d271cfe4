{{ config(materialized='incremental', unique_key='order_id') }}
with totals as (
    select order_id, sum(quantity) as items, sum(amount) as total
    from {{ ref('priced_lines') }}
    group by order_id
)
select o.order_id, o.shop_id, o.customer_id, o.ordered_at, t.items, t.total
from {{ ref('stg_orders') }} o
join totals t on t.order_id = o.order_id
where o.status <> 'returned'
{% if is_incremental() %}
  and o.ordered_at > (select max(ordered_at) from {{ this }})
{% endif %}
