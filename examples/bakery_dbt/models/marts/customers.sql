select
    c.id as customer_id,
    c.full_name,
    count(o.order_id) as orders,
    coalesce(sum(o.total), 0) as spent,
    min(o.ordered_at) as first_order_at,
    max(o.ordered_at) as last_order_at
from {{ ref('raw_customers') }} c
left join {{ ref('order_totals') }} o on o.customer_id = c.id
group by c.id, c.full_name
